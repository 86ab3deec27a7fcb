"""The web pages of the service, rendered on the server.

Pages read the snapshot and the history of ``service``, and ask it for operations. They decide
nothing, read no file of a job, and work as links where scripts are off.
"""
