"""The one error that users meet."""


class PosgeomError(ValueError):
    """What came is not what was expected.

    The message is one line for the person at the keyboard: what came, what was expected, what
    to do.  The command line prints it and exits with 2.
    """
