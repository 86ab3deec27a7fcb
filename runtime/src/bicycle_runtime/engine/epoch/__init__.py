"""One epoch, run or replayed: the orders of tasks, and the merge of reports."""
