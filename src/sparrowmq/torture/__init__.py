"""`sparrow torture`: a real cluster under faults, and the judgement of what its clients saw.

`events` is what clients note down, `checker` the judgement, `plan` the faults of a seed; all three are pure.
`processes` runs the servers, `cluster` makes a cluster of them, `relay` stands between its parts, `faults`
does what the plan says, `clients` send and read. Begin with `rounds`.
"""
