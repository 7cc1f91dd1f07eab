"""QAlign's engine: an exact Metropolis-Hastings chain over a language model's responses.

Importing it loads neither torch nor gradio; a torch model is imported when one is loaded.

Order of reading:
1. `types`, `protocols`: what a response and a step are, and what a model and a reward must do.
2. `target`: what the chain samples, and the log ratio of two texts under it.
3. `chain/moves/suffix`, `chain/kernel`: the proposal, and the rule that accepts it.
4. `chain/chain`: the step, and the loop over it.
5. `decide/rules`: how an answer is chosen from states or samples.
6. `run`, `record/runner`: one run with all its settings, drawn and written to a trace.
"""

from qalign_core.chain.chain import run_chain, run_chains
from qalign_core.chain.kernel import log_acceptance
from qalign_core.chain.merging import collect, iterate
from qalign_core.chain.sampling import sample_iid
from qalign_core.decide.methods import (
    best_of_n,
    majority_vote,
    minimum_bayes_risk,
    weighted_majority_vote,
)
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.dataframes import to_datatree, to_frame
from qalign_core.record.trace import load_trace, save_trace
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Sampling
from qalign_core.target import Target
from qalign_core.types import (
    Cost,
    Decision,
    Response,
    ScoredResponse,
    Step,
    Trace,
    TraceHeader,
)

Trace.to_frame, Trace.to_datatree = to_frame, to_datatree

__version__ = "0.5.0"

__all__ = [
    "Cost",
    "Decision",
    "LanguageModel",
    "Response",
    "RewardModel",
    "Sampling",
    "ScoredResponse",
    "Step",
    "Target",
    "Trace",
    "TraceHeader",
    "best_of_n",
    "collect",
    "iterate",
    "load_language_model",
    "load_reward_model",
    "load_trace",
    "log_acceptance",
    "majority_vote",
    "minimum_bayes_risk",
    "run_chain",
    "run_chains",
    "sample_iid",
    "save_trace",
    "to_datatree",
    "to_frame",
    "weighted_majority_vote",
]
