"""What happens where two or more streams meet, as functions over keyed state and timers.

A join is a function with several inputs and nothing more: rows wait in map states sorted by time,
and a timer lets each go once the watermark proves that no match can come. So joins get crashes,
rescales and late records right where all functions do. ``streams`` connects what is made here.
"""

from bicycle_sdk.joins.lookups import LookupCache

__all__ = ["LookupCache"]
