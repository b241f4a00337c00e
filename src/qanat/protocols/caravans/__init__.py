"""Caravans: how many who are at different places of one log are served by few readers of it (Wormhole,
section 3.1).

`policy` decides who travels together, `allocation` makes caravans of it, `pace` says how fast each may read,
`travel` is what all travellers and caravans have in common, `limits` what an operator can say. A publisher's
flows travel so, and the subscribers of a stream who have fallen behind.
"""
