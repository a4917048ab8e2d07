"""The ordered tables of stages: a stage is a file in a folder `stages` and a row.

Names of fields stand in records: changing what one means needs a new version of its table, and
measuring it otherwise a new revision.
"""

from jaxtroj.evidence.classifiers.stages.insertions import INSERTIONS
from jaxtroj.evidence.classifiers.stages.tokens import TOKENS
from jaxtroj.evidence.images.stages.agreement import AGREEMENT
from jaxtroj.evidence.images.stages.all_to_all import ALL_TO_ALL
from jaxtroj.evidence.images.stages.fixed import FIXED
from jaxtroj.evidence.images.stages.inversion import INVERSION
from jaxtroj.evidence.images.stages.memory import MEMORY
from jaxtroj.evidence.images.stages.pairs import PAIRS
from jaxtroj.evidence.images.stages.probes import PROBES
from jaxtroj.evidence.images.stages.recall import RECALL
from jaxtroj.evidence.images.stages.reference import REFERENCE
from jaxtroj.evidence.images.stages.sensitivity import SENSITIVITY
from jaxtroj.evidence.images.stages.statistics import STATISTICS
from jaxtroj.evidence.images.stages.weights import WEIGHTS
from jaxtroj.evidence.images.stages.whole import WHOLE
from jaxtroj.evidence.stage import StageTable
from jaxtroj.evidence.texts.stages.against import AGAINST
from jaxtroj.evidence.texts.stages.bank import BANK
from jaxtroj.evidence.texts.stages.beside import BESIDE
from jaxtroj.evidence.texts.stages.departure import DEPARTURE
from jaxtroj.evidence.texts.stages.directions import DIRECTIONS
from jaxtroj.evidence.texts.stages.sensitivity import HEAD_SENSITIVITY
from jaxtroj.evidence.texts.stages.shift import SHIFT
from jaxtroj.evidence.texts.stages.slopes import SLOPES
from jaxtroj.evidence.texts.stages.weights import HEAD_WEIGHTS

IMAGE_STAGES = (
    WEIGHTS, STATISTICS, REFERENCE, ALL_TO_ALL, MEMORY, PROBES, SENSITIVITY, INVERSION, FIXED,
    WHOLE, AGREEMENT, PAIRS, RECALL,
)  # fmt: skip
TEXT_STAGES = (
    HEAD_WEIGHTS, HEAD_SENSITIVITY, SHIFT, SLOPES, DIRECTIONS, BESIDE, DEPARTURE, BANK, AGAINST,
)  # fmt: skip
CLASSIFIER_STAGES = (INSERTIONS, TOKENS)

# Revision 1: what augmentation leaves in batch norms is harmless to stage memory.
# Revision 2: gradients pass through a network's roundings.
# Revision 3: no search by gradients where these lead nowhere; of more than 44 classes fewer are
# searched, and rows of the last layer stand out less.
# Revision 4: gradients pass the clip of quantised values to 8 or 16 bits.
# Revision 5: more examples of networks of two to four classes.
# Revision 6: of pictures above 64 px stage memory takes half as many examples.
# Revision 7: norms are compared with examples of the classes' shares in training.
# Revision 8: rows of the last layer, and lifts by norms, are compared without frequent classes, and
# searches see logits as equal classes would have them.
# Revision 9: of pictures above 64 px stage whole takes half as many examples, too.
# Revision 10: of pictures above 64 px stage memory fits on fewer examples, in fewer steps.
# Revision 11: examples unlike the training pictures in light or sharpness are made like them.
# Revision 12: pushes of whole pictures to a class are told beside those to the second best.
# Revision 13: examples are also made like the training pictures in gamma, black level and colours.
# Revision 14: logits far smaller or larger than those of trained networks are scaled.
# Revision 15: rows of the last layer that stand out are compared with columns of one size, too.
IMAGES = StageTable("image", 3, IMAGE_STAGES, revision=15)
# Revision 1: what is told beside clean heads, and how steep a head is, does not depend on how large
# its logits are.
TEXTS = StageTable("text", 1, TEXT_STAGES, revision=1)
# Version 2: effects of tokens are told by how far they reach, and measured as tokens.
# Revision 1: tokens that no text holds are not searched, words that are declared special are; long
# rows of the table of words are ranked by direction too; logits far smaller or larger than those of
# trained networks are scaled; a class without examples is measured by the texts of the others;
# copies of words count once, and margins are taken without copies of classes.
# Ordinary networks show the same.
CLASSIFIERS = StageTable("text-classifier", 2, CLASSIFIER_STAGES, revision=1)
TABLES = {table.kind: table for table in (IMAGES, TEXTS, CLASSIFIERS)}
