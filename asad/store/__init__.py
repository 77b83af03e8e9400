"""The state store: what every run decided and why, how it ended, and what live clusters keep over restarts.

`store.Store` is an open one with its runs and decisions, `recording.Run` a run being recorded. What live clusters keep
stands by kind in `learned`, `ledger`, `quota_audit` and `statements`; a daemon says it to `writer.Writer`, for whom the
store may be away. `retention` says for how long what is kept, and `summaries` what is left of it.
"""
