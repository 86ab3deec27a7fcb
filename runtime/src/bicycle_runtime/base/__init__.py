"""The foundation of all rooms: errors, options, clock, ids, logging, and storage.

Only this room and the doors read the wall clock, random numbers and environment variables; all
other code gets them as arguments, so that it can be run again with the same result.
"""
