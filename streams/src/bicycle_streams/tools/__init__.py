"""The tools of commands for streams of any backend, through the contract alone.

Each function runs until its input ends or it is canceled. None prints: messages go to a function.
"""
