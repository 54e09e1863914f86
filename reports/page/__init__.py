"""What an HTML page holds, section by section: each a pure function of the record and a template of the same name.

    Run ─▶ Section(name, title, what its template shows) … ─▶ rendering ─▶ one file without a network

A new section is a module here with `section(run)`, a template `NAME.html.j2`, and a line in `contextlab.reports.html`.
"""
