"""A run folder as a report: HTML in one file, SARIF, Markdown, CSV, JSON, and plots.

`content` reads everything a report shows; `fields`, `pictures`, `texts` and `charts` prepare parts
of it; `page` is the HTML file, `sarif`, `markdown` and `tables` are the other formats, `plots` the
files for papers.
"""
