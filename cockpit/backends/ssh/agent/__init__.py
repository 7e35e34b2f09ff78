"""What runs on a host: it starts, watches and ends the Ray node there.

`calls` sends these modules as one text with each call, after the modules that they import. They
need Python 3.9 or newer and its standard library. Nothing is installed.

    python -c TEXT VERB REQUEST

REQUEST is JSON; what is secret comes on standard input. The answer is JSON lines. A call ends when
its input does, which is when the connection ends: only a supervisor outlives it.

As one text the modules share one namespace: no two of them define the same name at the top.
"""
