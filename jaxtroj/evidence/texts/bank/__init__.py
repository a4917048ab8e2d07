"""The probe bank of an encoder: sentence vectors of carriers with candidate texts inserted.

`candidates` chooses the texts, `build` computes the vectors, `store` keeps them in a folder that a
stopped build goes on from.
"""

from jaxtroj.evidence.texts.bank.store import Bank, open_bank

__all__ = ["Bank", "open_bank"]
