"""Who gets which machine of an offering, who waits, and who gives way.

Capacity and allocator place NodePools on machines by the same rules and publish different parts of
the result. Each keeps a `Placement`, which a message changes in the same way in both: `claims.py`
says how many machines a NodePool may have and waits for, `ranking.py` in which order NodePools are
served, `machines.py` which machines are free, and `plan.py` who takes them.
"""
