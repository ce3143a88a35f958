"""The one exception a user can cause; its text is what the user reads."""


class UserError(ValueError):
    """A mistake or a lack on the user's side: what, where, and what to do, in one sentence.

    It is a ``ValueError`` because SGLang's HTTP side answers those with status 400.
    """
