package quorumvet

import (
	"go/ast"
	"go/types"
)

// work is a function literal that a function of the library calls with a lease's context.
type work struct {
	call *ast.CallExpr
	ctx  *types.Var // the ctx of the call, if it is a variable
	lock ast.Expr   // the Locker among the arguments, or nil
	body *ast.FuncLit
}

// workOf returns the function literal in a call of Do, Once or Election.Run.
func (c checker) workOf(call *ast.CallExpr) (w work, ok bool) {
	f := c.callee(call)
	if f == nil || !ours(f.Pkg()) || len(call.Args) < 2 || !isContext(c.TypesInfo.TypeOf(call.Args[0])) {
		return w, false
	}
	w = work{call: call, ctx: c.object(ast.Unparen(call.Args[0]))}
	for _, arg := range call.Args[1:] {
		lit, isLit := ast.Unparen(arg).(*ast.FuncLit)
		switch {
		case isLit && len(lit.Type.Params.List) > 0 && isContext(c.TypesInfo.TypeOf(lit.Type.Params.List[0].Type)):
			w.body = lit
		case w.lock == nil:
			w.lock = arg
		}
	}
	return w, w.body != nil
}

func isContext(t types.Type) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == "Context" && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == "context"
}

// outerContexts reports the ctx of a call of Do that the function inside passes on. A check of the
// outer ctx itself is allowed: it tells whether the caller has cancelled.
func (c checker) outerContexts(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		w, ok := c.workOf(call)
		if !ok || w.ctx == nil {
			return true
		}
		ast.Inspect(w.body.Body, func(n ast.Node) bool {
			inner, ok := n.(*ast.CallExpr)
			if !ok || c.is(inner, "context", "Cause", "WithoutCancel") {
				return true
			}
			for _, arg := range inner.Args {
				if c.object(ast.Unparen(arg)) == w.ctx {
					c.Reportf(arg.Pos(), "%s is not cancelled when the lock is lost: use the context that the function gets from %s", w.ctx.Name(), c.callee(call).Name())
				}
			}
			return true
		})
		return true
	})
}
