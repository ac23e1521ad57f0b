"""Several runs of one recipe: seeds, control arms, and the ledger of published results."""
