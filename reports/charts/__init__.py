"""Charts of a page as SVG: numbers in, shapes out; pure. The templates put the shapes into the page.

    values ─▶ axis.Axis ─▶ positions ─▶ drawing.Mark ─▶ drawing.Drawing (wide, narrow) ─▶ drawing.Chart ─▶ macros

Every chart has a sentence that says what it shows, with numbers, and a table with the same content. Colours are not
here: marks have classes, and the style sheet knows light from dark.
"""
