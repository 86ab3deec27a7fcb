"""What developers and tests need beside a job: a real Kafka broker on this machine.

Nothing that runs a job imports this room. It starts processes and fetches files, but only when it
is told to: importing it does neither.
"""
