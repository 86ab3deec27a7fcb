"""The process of ``bicycle up``: the service, its API and pages behind one port.

Commands start it by module name, so no command imports the API or the pages.
"""
