raise BaseException("the very base")  # noqa: TRY002
