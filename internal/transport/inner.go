package transport

// Inner is what node.Node embeds, so that [Of] finds its Node. The methods of that Node are not for users.
type Inner struct{ node *Node }

// NewInner returns what a node.Node over n embeds.
func NewInner(n *Node) Inner { return Inner{n} }

func (i Inner) inner() *Node { return i.node }

// Of returns the Node of a *node.Node; nil of a zero node.Node.
func Of(n interface{ inner() *Node }) *Node { return n.inner() }
