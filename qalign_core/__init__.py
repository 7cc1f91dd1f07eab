"""QAlign's engine: an exact Metropolis-Hastings chain over a language model's responses.

    >>> from qalign_core.decide.answers.extraction import extract_number
    >>> lm, rm = load_language_model("embedded"), load_reward_model("embedded")
    >>> prompt = "Leo has 9 ribbons and buys 12 more. How many ribbons does Leo have now?"
    >>> steps = collect(run_chain(lm, rm, prompt, beta=1.0, steps=16, seed=7))
    >>> majority_vote([step.state for step in steps], extract_number).answer
    '21'

The import loads neither torch nor gradio; torch is imported when a local model is loaded.

Suggested order of reading:
1. `chain/chain`: one step, and the loop over steps. The next seven files explain its calls; what
   `chain/ahead` and `chain/checks` do changes no number, and can be read last.
2. `types`: responses, proposals and steps.
3. `chain/moves/suffix`, `chain/moves/choices`, `chain/randomness`: the proposal, and the randomness
   that it draws.
4. `chain/sampling`, `chain/cost`: drawing and scoring a response, and what that costs.
5. `target`: the log ratio of two texts, and the rule that accepts a proposal.
6. `decide/rules`: choosing an answer from states or samples.
7. `run`, `record/runner`: the settings of a run, and drawing it into a trace.
"""

from qalign_core.chain.chain import run_chain
from qalign_core.chain.concurrent import run_chains, sample_iid
from qalign_core.chain.merging import collect, iterate
from qalign_core.decide.methods import (
    Decision,
    best_of_n,
    majority_vote,
    minimum_bayes_risk,
    weighted_majority_vote,
)
from qalign_core.protocols import LanguageModel, RewardModel
from qalign_core.record.store import load_trace, save_trace
from qalign_core.record.trace import Trace, TraceHeader
from qalign_core.registry import load_language_model, load_reward_model
from qalign_core.run import Run, Sampling
from qalign_core.target import Target, log_acceptance
from qalign_core.types import Cost, Response, ScoredResponse, Step

__version__ = "0.5.0"

__all__ = [
    "Cost",
    "Decision",
    "LanguageModel",
    "Response",
    "RewardModel",
    "Run",
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
    "weighted_majority_vote",
]
