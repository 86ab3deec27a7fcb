"""Frames: records as columns, and records that are created from columns on access.

``schemas`` has the types of fields. ``vectors`` contains columns of values, ``frame`` their names,
``record_forms`` the records as a view of columns. ``arrays`` and ``keys`` compute with columns and
pack them for the exchange. ``rows`` and ``record_shapes`` derive fields and their types from a
record type. Nothing here calls user code.
"""
