package quorumvet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// noticing are the methods of a lease through which its holder, or the resource, learns of a loss.
var noticing = []string{"Context", "Token", "ValidUntil", "Extend"}

// unnoticed reports a lease with a discarded error of Unlock and without another check for its
// loss.
func (c checker) unnoticed(body *ast.BlockStmt, a acquisition) {
	var discarded ast.Node
	noticed := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if c.unlocks(n) != a.lease {
				return true
			}
			switch p := c.parents[n].(type) {
			case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt:
				discarded = n
			case *ast.AssignStmt:
				if noticed = noticed || !isBlank(p.Lhs[0]); !noticed {
					discarded = n
				}
			default:
				noticed = true
			}
			for _, arg := range n.Args { // Unlock(lease.Context()) checks nothing
				noticed = noticed || !isContext(c.TypesInfo.TypeOf(arg)) && c.uses(arg, a.lease)
			}
			return false
		case *ast.SelectorExpr:
			if v, name := c.method(n); v == a.lease {
				noticed = noticed || !slices.Contains(asking, name) || slices.Contains(noticing, name)
				return false
			}
		case *ast.BinaryExpr:
			return n.Op != token.EQL && n.Op != token.NEQ
		case *ast.Ident:
			noticed = noticed || c.TypesInfo.Uses[n] == a.lease && !c.isAssigned(n)
		}
		return true
	})
	if discarded != nil && !noticed {
		c.Reportf(discarded.Pos(), "nothing notices the loss of %s: use %[1]s.Context() for the work, pass on its Token, or look for ErrLost in the error of Unlock", a.lease.Name())
	}
}

func (c checker) uses(n ast.Node, v *types.Var) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || n != nil && c.object(n) == v
		return !found
	})
	return found
}

func (c checker) isAssigned(id *ast.Ident) bool {
	a, ok := c.parents[id].(*ast.AssignStmt)
	return ok && slices.Contains(a.Lhs, ast.Expr(id))
}

// hidden reports errors of Unlock that hide other errors, or are hidden by others. Of functions
// inside, it analyzes only deferred ones.
func (c checker) hidden(body *ast.BlockStmt) {
	// the variables with an error of Unlock, with the position of the assignment
	from := make(map[*types.Var]token.Pos)
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.DeferStmt:
			c.replaced(n)
		case *ast.AssignStmt:
			for _, lhs := range n.Lhs {
				delete(from, c.object(lhs))
			}
			if len(n.Rhs) == 1 && len(n.Lhs) == 1 && c.unlocks(n.Rhs[0]) != nil && c.object(n.Lhs[0]) != nil {
				from[c.object(n.Lhs[0])] = n.Pos()
			}
		case *ast.CallExpr:
			if !c.is(n, "fmt", "Errorf") || len(n.Args) < 2 {
				return true
			}
			format := c.TypesInfo.Types[n.Args[0]].Value
			if format == nil || format.Kind() != constant.String || strings.Contains(constant.StringVal(format), "%w") {
				return true
			}
			for _, arg := range n.Args[1:] {
				v := c.object(arg)
				if _, ok := from[v]; ok && v != nil || c.unlocks(arg) != nil {
					c.Reportf(arg.Pos(), "the error of Unlock is formatted without %%w: errors.Is no longer finds ErrLost in it")
				}
			}
		}
		return true
	})
}

// replaced reports a deferred function that overwrites a result with the error of Unlock.
func (c checker) replaced(d *ast.DeferStmt) {
	lit, ok := d.Call.Fun.(*ast.FuncLit)
	if !ok {
		return
	}
	for _, stmt := range lit.Body.List {
		a, ok := stmt.(*ast.AssignStmt)
		if !ok || a.Tok != token.ASSIGN || len(a.Rhs) != 1 || c.unlocks(a.Rhs[0]) == nil {
			continue
		}
		if v := c.object(a.Lhs[0]); v != nil && v.Name() != "_" {
			c.Reportf(a.Pos(), "the error of Unlock replaces %s: use errors.Join(%[1]s, ...)", v.Name())
		}
	}
}

// comparisons reports sentinels that are compared by == or !=, except in a method Is for errors.Is.
func (c checker) comparisons(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		if d, ok := n.(*ast.FuncDecl); ok && d.Recv != nil && d.Name.Name == "Is" {
			return false
		}
		b, ok := n.(*ast.BinaryExpr)
		if !ok || b.Op != token.EQL && b.Op != token.NEQ {
			return true
		}
		for i, side := range []ast.Expr{b.X, b.Y} {
			if name := c.sentinel(side); name != "" && !c.isNil([]ast.Expr{b.Y, b.X}[i]) {
				c.Reportf(b.Pos(), "%s is compared with %s, but the errors of the library wrap it: use errors.Is", name, b.Op)
				break
			}
		}
		return true
	})
}

// sentinel returns the name of an error variable of the library, or "".
func (c checker) sentinel(e ast.Expr) string {
	s, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	v, ok := c.TypesInfo.Uses[s.Sel].(*types.Var)
	if !ok || v.IsField() || !ours(v.Pkg()) || !strings.HasPrefix(v.Name(), "Err") {
		return ""
	}
	return v.Name()
}
