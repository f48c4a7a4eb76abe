package quorumvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/cfg"
)

// acquisition is a statement that acquires a lock.
type acquisition struct {
	stmt  ast.Node   // the assignment or declaration
	lease *types.Var // a variable of the function
	err   *types.Var // nil if the error is discarded
}

// acquisitions returns the statements of a function that acquire a lock, except those in functions
// inside. It reports leases that are discarded.
func (c checker) acquisitions(sig *ast.FuncType, body *ast.BlockStmt) (all []acquisition) {
	scope := c.TypesInfo.Scopes[sig]
	discarded := func(n ast.Node) {
		// tests expect a refusal, or close the client soon
		if !strings.HasSuffix(c.Fset.Position(n.Pos()).Filename, "_test.go") {
			c.Reportf(n.Pos(), "the lease is discarded: nothing can unlock it before its client is closed")
		}
	}
	add := func(stmt ast.Node, lhs []ast.Expr, rhs []ast.Expr) {
		if len(lhs) != 2 || len(rhs) != 1 || !c.acquires(rhs[0]) {
			return
		}
		if id, ok := lhs[0].(*ast.Ident); ok && id.Name == "_" {
			discarded(stmt)
			return
		}
		if v := c.object(lhs[0]); v != nil && scope.Contains(v.Pos()) {
			all = append(all, acquisition{stmt, v, c.object(lhs[1])})
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.AssignStmt:
			add(n, n.Lhs, n.Rhs)
		case *ast.ValueSpec:
			lhs := make([]ast.Expr, len(n.Names))
			for i, id := range n.Names {
				lhs[i] = id
			}
			add(n, lhs, n.Values)
		case *ast.ExprStmt:
			if c.acquires(n.X) {
				discarded(n)
			}
		}
		return true
	})
	return all
}

// unreleased reports an acquisition if a path after it ends without an Unlock.
func (c checker) unreleased(f ast.Node, sig *ast.FuncType, a acquisition) {
	cfgs := c.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	var g *cfg.CFG
	switch f := f.(type) {
	case *ast.FuncDecl:
		g = cfgs.FuncDecl(f)
	case *ast.FuncLit:
		g = cfgs.FuncLit(f)
	}
	p := path{checker: c, acquisition: a, seen: make(map[state]bool)}
	if sig.Results != nil {
		for _, field := range sig.Results.List {
			p.named = p.named || slices.ContainsFunc(field.Names, func(id *ast.Ident) bool { return c.object(id) == a.lease })
		}
	}
	for _, b := range g.Blocks {
		if i := slices.Index(b.Nodes, a.stmt); i >= 0 && b.Live {
			if end := p.walk(b, i+1, a.err != nil); end.IsValid() {
				c.Reportf(a.stmt.Pos(), "%s is not unlocked on the path to line %d: the lock stays held, and is renewed, until its client is closed: use defer %[1]s.Unlock(ctx)",
					a.lease.Name(), c.Fset.Position(end).Line)
			}
			return
		}
	}
}

// path searches for a path from an acquisition to a return on which the lease is held.
type path struct {
	checker
	acquisition
	named bool // the lease is a named result
	seen  map[state]bool
}

type state struct {
	block *cfg.Block
	known bool // whether the error variable still has the error of the acquisition
}

// walk returns the position of the end of the first path that keeps the lease.
func (p *path) walk(b *cfg.Block, from int, known bool) token.Pos {
	for i, n := range b.Nodes[from:] {
		if from+i == len(b.Nodes)-1 && len(b.Succs) == 2 {
			if cond, ok := n.(ast.Expr); ok {
				return p.branch(b, cond, known)
			}
		}
		switch {
		case p.passesOn(n):
			return token.NoPos
		case n == p.stmt || p.assigns(n, p.lease):
			return n.Pos()
		case known && p.err != nil && p.judges(n):
			return token.NoPos
		case p.err != nil && p.assigns(n, p.err):
			known = false
		}
	}
	if r := b.Return(); r != nil {
		return r.Pos()
	}
	return p.follow(b.Succs, known)
}

func (p *path) follow(blocks []*cfg.Block, known bool) token.Pos {
	for _, b := range blocks {
		if s := (state{b, known}); !p.seen[s] {
			p.seen[s] = true
			if end := p.walk(b, 0, known); end.IsValid() {
				return end
			}
		}
	}
	return token.NoPos
}

// branch follows the branches of a condition on which a lease is possible.
func (p *path) branch(b *cfg.Block, cond ast.Expr, known bool) token.Pos {
	if p.passesOn(cond) || known && p.err != nil && !p.understands(cond) {
		return token.NoPos
	}
	for i, holds := range []bool{true, false} {
		if p.excludes(cond, holds, known) {
			continue
		}
		if end := p.follow(b.Succs[i:i+1], known); end.IsValid() {
			return end
		}
	}
	return token.NoPos
}

// excludes reports whether there is no lease if cond has that value.
func (p *path) excludes(cond ast.Expr, value, known bool) bool {
	switch e := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		return e.Op == token.NOT && p.excludes(e.X, !value, known)
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			x, y := p.excludes(e.X, value, known), p.excludes(e.Y, value, known)
			if value == (e.Op == token.LAND) {
				return x || y
			}
			return x && y
		case token.EQL, token.NEQ:
			x, isNil := e.X, p.isNil(e.Y)
			if p.isNil(e.X) {
				x, isNil = e.Y, true
			}
			equal := value == (e.Op == token.EQL)
			switch v := p.object(ast.Unparen(x)); {
			case v == nil:
			case v == p.lease:
				return isNil && equal
			case v == p.err && known:
				return isNil != equal // not nil, or equal to an error
			}
		}
	case *ast.CallExpr:
		return value && known && p.is(e, "errors", "Is", "As", "AsType") && len(e.Args) > 0 && p.err != nil && p.object(e.Args[0]) == p.err
	case *ast.Ident: // _, ok := errors.AsType[E](err)
		return value && known && p.foundIn(e)
	}
	return false
}

// understands reports whether a condition tests the error only in ways that excludes knows.
func (p *path) understands(cond ast.Expr) bool {
	switch e := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		return p.understands(e.X)
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			return p.understands(e.X) && p.understands(e.Y)
		case token.EQL, token.NEQ:
			return true
		}
	}
	return !p.mentions(cond, p.err) || p.excludes(cond, true, true)
}

// foundIn reports whether ok is the second result of errors.AsType for the error.
func (p *path) foundIn(ok *ast.Ident) bool {
	def, _ := p.defining(p.object(ok)).(*ast.AssignStmt)
	return def != nil && len(def.Lhs) == 2 && len(def.Rhs) == 1 && p.excludes(def.Rhs[0], true, true)
}

// defining returns the statement that defines a variable of the file.
func (c checker) defining(v *types.Var) ast.Node {
	if v == nil {
		return nil
	}
	for id, o := range c.TypesInfo.Defs {
		if o == v {
			return c.parents[id]
		}
	}
	return nil
}

func (c checker) isNil(e ast.Expr) bool { return c.TypesInfo.Types[e].IsNil() }

// judges reports whether a statement derives a value from the error, on which later conditions may
// depend.
func (p *path) judges(n ast.Node) bool {
	a, ok := n.(*ast.AssignStmt)
	if !ok {
		return false
	}
	return slices.ContainsFunc(a.Rhs, func(e ast.Expr) bool { return !p.understands(e) })
}

func (p *path) mentions(n ast.Node, v *types.Var) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || n != nil && p.object(n) == v
		return !found
	})
	return found
}

// assigns reports whether a statement assigns to a variable.
func (p *path) assigns(n ast.Node, v *types.Var) bool {
	a, ok := n.(*ast.AssignStmt)
	return ok && slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool { return p.object(e) == v })
}

// asking are the methods of a lease that leave it held.
var asking = []string{"Name", "Owner", "Token", "ValidUntil", "Slot", "HoldCount", "Context", "Extend", "String", "LogValue"}

// passesOn reports whether a statement unlocks the lease, or passes it to other code.
func (p *path) passesOn(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			found = found || p.named && n.Results == nil
		case *ast.SelectorExpr:
			if v, name := p.method(n); v == p.lease && slices.Contains(asking, name) {
				return false
			}
		case *ast.BinaryExpr: // compared with nil
			if n.Op == token.EQL || n.Op == token.NEQ {
				return false
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				found = found || p.object(e) != p.lease && p.passesOn(e)
			}
			for i, e := range n.Rhs {
				discards := len(n.Lhs) == len(n.Rhs) && isBlank(n.Lhs[i]) && p.object(e) == p.lease
				found = found || !discards && p.passesOn(e)
			}
			return false
		case *ast.Ident:
			found = found || p.TypesInfo.Uses[n] == p.lease
		}
		return !found
	})
	return found
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}
