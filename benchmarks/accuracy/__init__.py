"""How well verdicts separate poisoned models from clean ones, beside rivals where there are any."""
