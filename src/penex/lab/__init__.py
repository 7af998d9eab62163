"""The laboratory: it trains models with several losses and keeps what happened (the extra lab)."""
