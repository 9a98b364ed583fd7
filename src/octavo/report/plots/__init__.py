"""Results as plots, by Matplotlib (the extra `report`), which is loaded where one is drawn.

`style` has the colours, and how a plot becomes SVG or PNG; the other modules make one out of a
result each: `speeds` of a benchmark, `errors` of a comparison, `trials` of a tuning run.
"""
