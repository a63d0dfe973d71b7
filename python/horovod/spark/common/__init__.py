"""The code that the estimators of all frameworks share."""
