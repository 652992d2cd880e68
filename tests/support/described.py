"""The NodePool that the product's documentation describes, in the lines that kubectl prints."""

DESCRIBED = """\
Name:         test-pool
Namespace:    
Labels:       <none>
Annotations:  <none>
API Version:  compute.coreweave.com/v1alpha1
Kind:         NodePool
Metadata:
  Creation Timestamp:  2025-06-09T14:48:54Z
  Generation:          1
  Resource Version:    857370
  UID:                 9311678d-4064-45b8-8439-b943250e5852
Spec:
  Autoscaling:    false
  Instance Type:  gd-8xa100-i128
  Lifecycle:
    Disable Unhealthy Node Eviction:  true
    Scale Down Strategy:              IdleOnly
  Target Nodes:                       1
Status:
  Conditions:
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               NodePool configuration is valid.
    Reason:                Valid
    Status:                True
    Type:                  Validated
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               Sufficient capacity available for the requested instance type.
    Reason:                Sufficient
    Status:                True
    Type:                  Capacity
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               NodePool is within instance type quota.
    Reason:                Under
    Status:                True
    Type:                  Quota
    Last Transition Time:  2025-05-30T17:36:00Z
    Message:               NodePool has reached its target node count.
    Reason:                TargetMet
    Status:                True
    Type:                  AtTarget
  Current Nodes:           1
  In Progress:             0
Events:                    <none>"""  # noqa: W291 - kubectl ends the line of the namespace with blanks.
