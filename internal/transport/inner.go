package transport

// Inner is embedded in node.Node, so that [Of] finds its Node. Its methods are not for users.
type Inner struct{ node *Node }

// NewInner returns the Inner of a node.Node over n.
func NewInner(n *Node) Inner { return Inner{n} }

func (i Inner) inner() *Node { return i.node }

// Of returns the Node of a *node.Node; nil for a zero node.Node.
func Of(n interface{ inner() *Node }) *Node { return n.inner() }
