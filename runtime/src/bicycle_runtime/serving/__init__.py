"""The process of ``bicycle up``: the service, its API and its pages behind one port.

The doors do not know each other; this room puts them together, and is started by module name.
"""
