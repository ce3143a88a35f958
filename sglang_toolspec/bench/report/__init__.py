"""The report of a benchmark: one HTML page that needs nothing else.

``source`` reads what was measured, ``looks`` and ``drawings_…`` draw it, ``sections`` says which charts
there are, and ``page`` writes them down.
"""
