"""`asax`: expert decision trees and exponential weights decide how much of a host is lent, and to whom.

Source: the ASAx paper, §3 and Algorithm 1, mended where it leaves things open (docs/explanation/asax.md lists the
points side by side with `asax-paper`, which is the letter). For every waiting job, the widest first:

1. hosts with room: CPU measured, `1 - CPU - headroom` above what they lend already, in time (happiness), not late;
2. the host beside which the job would run fastest; the experts' opinions on the pair, mixed by the weights of the
   host's application; one share drawn among those that leave the job better off than waiting; 0 tries another host;
3. the guest lives in the idle class with the share as a cap; it rises once the job would have started by itself;
4. a window later the loss is seen (the host's slowdown, and idle CPU withheld from the guest), and learned from.

Where few jobs wait and history knows them all well, the pairs of step 2 are those whose forecast is best.

Options: `Options`. Cost a cycle: O(cores + waiting · hosts with room); a decision takes a few microseconds, a search by
forecast O(waiting · hosts) forecasts a pair and scenario.

Read `policy` first: it takes the steps. From the ground up, each file calling those above it alone:

    options     what can be set
    memo        what is remembered of single jobs
    starts      when jobs would have started by themselves, and who ends later than that
    ceilings    how much of a host may be lent
    losses      what lending has cost, learned by the weights
    shares      the share of one pair: drawn, and noted among the decisions of the cycle
    revision    shares of guests that run
    prospects   what to expect of a waiting job, beside a host or by itself
    offers      waiting jobs beside running ones, pair by pair
    outlook     the cluster as history expects it to go on
    forecast    the scheduler run ahead from an outlook
    search      the pairs whose forecast is best
    foreseen    waiting jobs beside running ones, by forecast
    telling     decisions with their stories
    policy      what a cycle learns and decides
"""

from asad.share.asax.options import Options
from asad.share.asax.policy import Asax

__all__ = ["Asax", "Options"]
