// Package shrink makes plans of simulations smaller. Only tests use it.
//
// The tags of a plan's fields mark its removable parts. Each element of a slice with
// `shrink:"drop"` may be dropped. A field with `shrink:"0"`, or another number, may be set to that
// number.
package shrink

import (
	"reflect"
	"slices"
	"strconv"
)

// Plan removes the parts of a plan that its failure does not need, one after another, and returns
// the smallest failing plan. It does not change p.
func Plan[P any](p *P, fails func(*P) bool) *P {
	for again := true; again; {
		again = false
		for _, smaller := range smaller(p) {
			if fails(smaller) {
				p, again = smaller, true
				break
			}
		}
	}
	return p
}

// smaller returns plans with one part less. They share the other parts with p.
func smaller[P any](p *P) (all []*P) {
	less(reflect.ValueOf(p).Elem(), "", func(v reflect.Value) {
		q := new(P)
		reflect.ValueOf(q).Elem().Set(v)
		all = append(all, q)
	})
	return all
}

// less passes every value to take that has one thing less than v, the largest things first.
func less(v reflect.Value, tag string, take func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			less(v.Field(i), v.Type().Field(i).Tag.Get("shrink"), func(x reflect.Value) {
				changed := reflect.New(v.Type()).Elem()
				changed.Set(v)
				changed.Field(i).Set(x)
				take(changed)
			})
		}
	case reflect.Slice:
		if tag == "drop" {
			for i := range v.Len() {
				take(reflect.AppendSlice(clone(v.Slice(0, i)), v.Slice(i+1, v.Len())))
			}
		}
		for i := range v.Len() {
			less(v.Index(i), "", func(x reflect.Value) {
				changed := clone(v)
				changed.Index(i).Set(x)
				take(changed)
			})
		}
	default:
		if n, err := strconv.Atoi(tag); err == nil {
			x := number(v.Type(), n)
			if !x.Equal(v) {
				take(x)
			}
		}
	}
}

func clone(v reflect.Value) reflect.Value {
	return reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v)
}

// number returns n as a value of type t, or the zero value if t is not numeric.
func number(t reflect.Type, n int) reflect.Value {
	if slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Float64}, t.Kind()) {
		return reflect.ValueOf(n).Convert(t)
	}
	return reflect.Zero(t)
}
