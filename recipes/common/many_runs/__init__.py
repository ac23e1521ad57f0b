"""Several runs of a recipe taken together: seeds, arms, the ledger."""
