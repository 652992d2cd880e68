"""What Pods ask for: the Pods on a Node, and the Pods that wait for a Node."""
