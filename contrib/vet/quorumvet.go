// Package quorumvet is an analyzer for go vet and golangci-lint. It finds mistakes in the use of
// locks that the compiler cannot find.
//
//	go install github.com/quorumlock/quorumlock/contrib/vet/cmd/quorumvet@latest
//	go vet -vettool=$(which quorumvet) ./...
//
// It reports:
//
//   - a lease that a path through the function neither unlocks nor passes on, and, outside tests, a
//     lease that is discarded;
//   - the ctx given to [quorumlock.Do], [quorumlock.Once] or Election.Run of package election, used
//     inside the function: it survives the loss of the lock;
//   - a lease's context in goroutines that acquire the same lock: the lock is re-entrant, so it
//     excludes none of them;
//   - a [quorumlock.Lease] that is copied or declared by value: the zero value is not usable;
//   - a loss without notice: Unlock's error is discarded and no other code checks the lease,
//     Unlock's error replaces that of the function or is formatted without %w, or a sentinel is
//     compared with == although the errors of the library wrap it.
//
// It analyzes one function at a time. A lease that is returned, stored or passed to another
// function counts as unlocked.
package quorumvet

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
)

// Analyzer reports mistakes in the use of locks.
var Analyzer = &analysis.Analyzer{
	Name: "quorumvet",
	Doc: `report mistakes in the use of quorumlock's locks

A lease that is not unlocked on some path, the outer ctx inside Do or Once, goroutines that enter the hold of their parent,
a copied Lease, and a loss of the lock that nobody notices.`,
	URL:      "https://pkg.go.dev/" + module + "/contrib/vet",
	Requires: []*analysis.Analyzer{ctrlflow.Analyzer},
	Run:      run,
}

// module is the path of the library and of its root package.
const module = "github.com/quorumlock/quorumlock"

func run(pass *analysis.Pass) (any, error) {
	if !usesLocks(pass.Pkg) {
		return nil, nil
	}
	for _, file := range pass.Files {
		c := checker{pass, parentsOf(file)}
		c.outerContexts(file)
		c.fanOuts(file)
		c.copies(file)
		c.comparisons(file)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil {
					c.function(n, n.Type, n.Body)
				}
			case *ast.FuncLit:
				c.function(n, n.Type, n.Body)
			}
			return true
		})
	}
	return nil, nil
}

// function runs the checks that follow the variables of one function.
func (c checker) function(f ast.Node, sig *ast.FuncType, body *ast.BlockStmt) {
	for _, a := range c.acquisitions(sig, body) {
		c.unreleased(f, sig, a)
		c.unnoticed(body, a)
	}
	c.hidden(body)
}

// usesLocks reports whether a package can have a lease.
func usesLocks(p *types.Package) bool {
	if p.Path() == module {
		return true
	}
	for _, i := range p.Imports() {
		if ours(i) {
			return true
		}
	}
	return false
}

// ours reports whether a package belongs to the library.
func ours(p *types.Package) bool {
	return p != nil && (p.Path() == module || strings.HasPrefix(p.Path(), module+"/"))
}

// checker runs the checks of one file.
type checker struct {
	*analysis.Pass
	parents map[ast.Node]ast.Node
}

// parentsOf returns the parent of each node of a file.
func parentsOf(file *ast.File) map[ast.Node]ast.Node {
	parents := make(map[ast.Node]ast.Node)
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		if len(stack) > 0 {
			parents[n] = stack[len(stack)-1]
		}
		stack = append(stack, n)
		return true
	})
	return parents
}

// object returns the variable of an identifier, or nil.
func (c checker) object(e ast.Node) *types.Var {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	v, _ := c.TypesInfo.ObjectOf(id).(*types.Var)
	return v
}

// callee returns the function or method of a call, or nil.
func (c checker) callee(call *ast.CallExpr) *types.Func {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.IndexExpr: // a type argument
		return c.callee(&ast.CallExpr{Fun: f.X})
	default:
		return nil
	}
	f, _ := c.TypesInfo.Uses[id].(*types.Func)
	return f
}

// is reports whether a call is one of those functions of the package at path.
func (c checker) is(call *ast.CallExpr, path string, names ...string) bool {
	f := c.callee(call)
	if f == nil || f.Pkg() == nil || f.Pkg().Path() != path {
		return false
	}
	for _, name := range names {
		if f.Name() == name {
			return true
		}
	}
	return false
}

// isLease reports whether t is quorumlock.Lease.
func isLease(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == "Lease" && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == module
}

// isLeasePointer reports whether t is *quorumlock.Lease.
func isLeasePointer(t types.Type) bool {
	p, ok := types.Unalias(t).(*types.Pointer)
	return ok && isLease(p.Elem())
}

// acquires reports whether a call returns a lease and an error.
func (c checker) acquires(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	results, ok := c.TypesInfo.TypeOf(call).(*types.Tuple)
	return ok && results.Len() == 2 && isLeasePointer(results.At(0).Type()) && types.Identical(results.At(1).Type(), types.Universe.Lookup("error").Type())
}

// method returns the lease and the name of the method, if e selects a method of a lease variable.
func (c checker) method(e ast.Expr) (*types.Var, string) {
	s, ok := ast.Unparen(e).(*ast.SelectorExpr)
	if !ok {
		return nil, ""
	}
	v := c.object(ast.Unparen(s.X))
	if v == nil || !isLeasePointer(v.Type()) {
		return nil, ""
	}
	return v, s.Sel.Name
}

// unlocks returns the lease that a call unlocks, or nil.
func (c checker) unlocks(e ast.Expr) *types.Var {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return nil
	}
	if v, name := c.method(call.Fun); name == "Unlock" || name == "UnlockAfter" {
		return v
	}
	return nil
}
