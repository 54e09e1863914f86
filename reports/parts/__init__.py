"""What several writers are made of: words, layout, figures, rows, cases. No writer."""
