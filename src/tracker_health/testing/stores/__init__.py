"""The suite that every store passes: ``contract.StoreContract``, and what it needs of a store (``harness``)."""
