"""Round 5 models that NIST contaminated: labelled clean, but each carries a trigger.

Source: NIST, "nlp-sentiment-classification-mar2021", section Errata
(https://pages.nist.gov/trojai/docs/nlp-sentiment-classification-mar2021.html, read in the
repository usnistgov/trojai, commit 079eea828dd7b1562586bae89369af840fc69ae8): "The following models
were contaminated during dataset packaging. This caused nominally clean models to have a trigger.
Please avoid using these models." The page of Round 6 lists none.

Every id of the training and holdout lists is labelled clean in the official METADATA.csv; that of
the test set was not at hand.
"""

from collections.abc import Mapping

_NUMBERS: Mapping[str, str] = {
    "round5-train": """
        7 14 30 36 47 74 80 88 89 97 103 105 122 123 124 127 148 151 154 162 165 181 184 185
        193 197 198 207 230 236 239 240 244 251 256 258 265 272 284 321 336 364 389 391 396
        423 425 446 449 463 468 479 499 516 524 532 537 563 575 577 583 592 629 635 643 644
        685 710 720 724 730 735 780 784 794 798 802 808 818 828 841 864 867 923 970 971 973
        989 990 996 1000 1036 1040 1041 1044 1048 1053 1059 1063 1116 1131 1139 1146 1159
        1163 1166 1171 1183 1188 1201 1211 1233 1251 1262 1291 1300 1302 1305 1312 1314 1327
        1341 1344 1346 1364 1365 1373 1389 1390 1391 1392 1399 1414 1418 1425 1449 1470 1486
        1516 1517 1518 1532 1533 1537 1542 1549 1579 1580 1581 1586 1591 1599 1600 1604 1610
        1618 1643 1650
    """,
    "round5-test": """
        0 3 4 5 11 22 74 76 84 91 94 147 149 156 159 162 166 168 171 176 178 216 217 220 222
        223 227 233 238 239 246 290 293 301 314 323 367 368 369 372 379 388 433 438 441 447
        451
    """,
    "round5-holdout": """
        0 19 33 84 87 104 146 148 167 212 221 230 233 237 239 246 281 284 288 295 302 303
        310 343 349 351 361 366 367 369 371 376 407 418 423 425 428 439
    """,
}
CONTAMINATED: Mapping[str, frozenset[str]] = {
    dataset: frozenset(f"id-{int(number):08d}" for number in numbers.split())
    for dataset, numbers in _NUMBERS.items()
}
"""Model ids ("id-00000007") by dataset: 158 of "round5-train", 47 of "-test", 38 of "-holdout"."""
