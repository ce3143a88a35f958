"""``sglang-toolspec bench``: speculative algorithms on one SGLang build, asked the same in turn.

``workloads`` are rows, ``request`` makes them requests, ``plan`` says which are asked in which order,
``runner`` asks the servers of the ``variants``, ``measure`` times one reply, ``output`` keeps it, and
``summary`` makes the figures.
"""
