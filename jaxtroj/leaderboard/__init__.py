"""What TrojAI's leaderboard measures: predictions of anyone, scored, swept, split and compared.

`predictions` reads run folders, harness result files and CSV tables; `cases` joins them with the
truth; `curves`, `sweep` and `paired` compute; `refit` judges stored evidence out of fold; `output`
and `plots` write files.
"""
