"""What the layers share: the forms of a weight and their rules, step sizes, loading, what torch does to modules."""
