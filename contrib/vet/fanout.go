package quorumvet

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// fanOuts reports goroutines that acquire a lock with a context that already holds it.
func (c checker) fanOuts(file *ast.File) {
	holds := c.contextsOf(file)
	ast.Inspect(file, func(n ast.Node) bool {
		for _, body := range c.goroutine(n) {
			ast.Inspect(body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				ctx, lock := c.takes(call)
				if ctx == nil {
					return true
				}
				if held := c.heldBy(ctx, holds); held != "" && held == c.lockKey(lock) {
					c.Reportf(call.Pos(), "this goroutine enters the hold that its context has, with all others that do: the lock excludes none of them: use a context that does not descend from the lease")
				}
				return true
			})
		}
		return true
	})
}

// goroutine returns the functions that a statement runs in a goroutine of its own: of a go
// statement, and of the method Go of a group.
func (c checker) goroutine(n ast.Node) (bodies []ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return []ast.Node{n.Call}
	case *ast.CallExpr:
		if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Go", "TryGo"}, s.Sel.Name) {
			for _, arg := range n.Args {
				if lit, ok := arg.(*ast.FuncLit); ok {
					bodies = append(bodies, lit)
				}
			}
		}
	}
	return bodies
}

// takes returns the ctx and the lock of a call that acquires a lock.
func (c checker) takes(call *ast.CallExpr) (ctx, lock ast.Expr) {
	if c.is(call, module, "Do", "Once") && len(call.Args) > 1 {
		return call.Args[0], call.Args[1]
	}
	s, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if ok && c.acquires(call) && len(call.Args) == 1 && strings.HasSuffix(s.Sel.Name, "Lock") {
		return call.Args[0], s.X
	}
	return nil, nil
}

// contextsOf returns the variables of a file that are contexts of leases, each with the key of its
// lock.
func (c checker) contextsOf(file *ast.File) map[*types.Var]string {
	holds := make(map[*types.Var]string)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			w, ok := c.workOf(n)
			if names := w.params(); ok && w.lock != nil && len(names) > 0 {
				holds[c.object(names[0])] = c.lockKey(w.lock)
			}
		case *ast.AssignStmt:
			if len(n.Rhs) != 1 {
				return true
			}
			call, ok := n.Rhs[0].(*ast.CallExpr)
			if !ok {
				return true
			}
			if c.acquires(call) {
				if _, lock := c.takes(call); lock != nil && c.object(n.Lhs[0]) != nil {
					holds[c.object(n.Lhs[0])] = c.lockKey(lock) // the lease stands for its context
				}
				return true
			}
			for _, lhs := range n.Lhs {
				if v := c.object(lhs); v != nil && isContext(v.Type()) {
					holds[v] = c.heldBy(call, holds)
				}
			}
		}
		return true
	})
	return holds
}

func (w work) params() []*ast.Ident {
	if w.body == nil {
		return nil
	}
	return w.body.Type.Params.List[0].Names
}

// heldBy returns the key of the lock that a context holds, or "". A call counts as a context that
// descends from its first argument.
func (c checker) heldBy(ctx ast.Expr, holds map[*types.Var]string) string {
	switch e := ast.Unparen(ctx).(type) {
	case *ast.Ident:
		return holds[c.object(e)]
	case *ast.CallExpr:
		if v, name := c.method(e.Fun); name == "Context" {
			return holds[v]
		}
		if len(e.Args) > 0 && isContext(c.TypesInfo.TypeOf(e.Args[0])) {
			return c.heldBy(e.Args[0], holds)
		}
	}
	return ""
}

// lockKey returns a text that two expressions share only if they are the same lock.
func (c checker) lockKey(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v := c.object(e)
		if def, ok := c.defining(v).(*ast.AssignStmt); ok && len(def.Lhs) == 1 && len(def.Rhs) == 1 {
			if call, ok := def.Rhs[0].(*ast.CallExpr); ok {
				return c.lockKey(call)
			}
		}
		if o := c.TypesInfo.ObjectOf(e); o != nil {
			return fmt.Sprintf("%s@%d", e.Name, o.Pos())
		}
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		if x := c.lockKey(e.X); x != "" {
			return x + "." + e.Sel.Name
		}
	case *ast.BinaryExpr:
		x, y := c.lockKey(e.X), c.lockKey(e.Y)
		if x != "" && y != "" {
			return x + e.Op.String() + y
		}
	case *ast.CallExpr:
		parts := []string{c.lockKey(e.Fun)}
		for _, arg := range e.Args {
			parts = append(parts, c.lockKey(arg))
		}
		if !slices.Contains(parts, "") {
			return parts[0] + "(" + strings.Join(parts[1:], ",") + ")"
		}
	}
	return ""
}
