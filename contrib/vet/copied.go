package quorumvet

import (
	"go/ast"
	"go/types"
)

// copies reports leases that are copied, or declared by value.
func (c checker) copies(file *ast.File) {
	if c.Pkg.Path() == module { // the root package implements the copies
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			if t := c.TypesInfo.Types[n]; t.IsValue() && isLease(t.Type) && !c.isSelected(n) {
				c.Reportf(n.Pos(), "a Lease is copied: pass the *quorumlock.Lease on")
			}
		case *ast.Ident:
			if name, ok := c.TypesInfo.Uses[n].(*types.TypeName); ok && isLease(name.Type()) && c.byValue(n) {
				c.Reportf(n.Pos(), "a Lease by value is not usable before it is assigned: use *quorumlock.Lease")
			}
		}
		return true
	})
}

// isSelected reports whether an expression is only the operand of a selector.
func (c checker) isSelected(n ast.Node) bool {
	p := c.parents[n]
	for {
		paren, ok := p.(*ast.ParenExpr)
		if !ok {
			break
		}
		p = c.parents[paren]
	}
	_, ok := p.(*ast.SelectorExpr)
	return ok
}

// byValue reports whether the type is used neither in a pointer type nor as a type argument.
func (c checker) byValue(n ast.Node) bool {
	p := c.parents[n]
	if s, ok := p.(*ast.SelectorExpr); ok {
		p = c.parents[s]
	}
	switch p.(type) {
	case *ast.StarExpr, *ast.IndexExpr, *ast.IndexListExpr, *ast.TypeSpec:
		return false
	}
	return true
}
