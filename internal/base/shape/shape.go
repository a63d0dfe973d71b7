// Package shape tells builds apart that would not understand each other, by a digest of the types that they send, as
// JSON sees them. A version number does not change with every field.
package shape

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
)

// Digest is eight hexadecimal digits. Values whose types have the same fields, with the same names, tags and kinds,
// give the same digest, whatever the types are called. Numbers count by their values, so that versions can be among the
// values.
func Digest(values ...any) string {
	h := sha256.New()
	for _, v := range values {
		t := reflect.TypeOf(v)
		if t.Kind() == reflect.Int {
			fmt.Fprintf(h, "%d;", v)
			continue
		}
		describe(h, t, nil)
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// describe writes a type. above are the types that contain it, at which recursion ends.
func describe(w io.Writer, t reflect.Type, above []reflect.Type) {
	for i, a := range above {
		if a == t {
			fmt.Fprintf(w, "^%d;", i)
			return
		}
	}
	above = append(above[:len(above):len(above)], t)
	fmt.Fprintf(w, "%s", t.Kind())
	switch t.Kind() {
	case reflect.Struct:
		io.WriteString(w, "{")
		for i := range t.NumField() {
			f := t.Field(i)
			if f.IsExported() || f.Anonymous {
				fmt.Fprintf(w, "%s %q ", f.Name, f.Tag.Get("json"))
				describe(w, f.Type, above)
			}
		}
		io.WriteString(w, "}")
	case reflect.Pointer, reflect.Slice:
		describe(w, t.Elem(), above)
	case reflect.Array:
		fmt.Fprintf(w, "%d ", t.Len())
		describe(w, t.Elem(), above)
	case reflect.Map:
		describe(w, t.Key(), above)
		describe(w, t.Elem(), above)
	}
	io.WriteString(w, ";")
}
