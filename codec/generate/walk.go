package main

import (
	"encoding/json"
	"fmt"
	"log"
	"reflect"
	"sort"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scalars are the types with a JSON form of their own.
var scalars = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "fields",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "json",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "schemaorarray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "schemaorbool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "schemaorstrings",
}

var typeMeta = reflect.TypeFor[metav1.TypeMeta]()

// structure is one struct of the table.
type structure struct {
	pkg, name string
	atomic    bool
	kinds     map[string][]string // group/versions by kind
	union     string              // its line, where it is one
	embeds    []string
	fields    []string
}

// walk collects structs and named strings from the kinds down.
type walk struct {
	sources sources
	structs map[reflect.Type]*structure
	texts   map[reflect.Type][]string // named string types, with the values of those that are enums
}

func newWalk() *walk {
	return &walk{sources{}, map[reflect.Type]*structure{}, map[reflect.Type][]string{}}
}

// openAPIPackage is the package's name in OpenAPI: k8s.io/api/core/v1 -> io.k8s.api.core.v1.
func openAPIPackage(path string) string {
	host, rest, _ := strings.Cut(path, "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".")
}

func (w *walk) kind(gvk schema.GroupVersionKind, t reflect.Type) {
	s := w.structure(t)
	s.kinds[gvk.Kind] = append(s.kinds[gvk.Kind], gvk.GroupVersion().String())
}

func (w *walk) structure(t reflect.Type) *structure {
	if s, ok := w.structs[t]; ok {
		return s
	}
	s := &structure{
		pkg:    openAPIPackage(t.PkgPath()),
		name:   t.Name(),
		atomic: w.sources.of(t.PkgPath()).types[t.Name()].first("structType") == "atomic",
		kinds:  map[string][]string{},
	}
	w.structs[t] = s
	w.fields(s, t, 0)
	if w.sources.of(t.PkgPath()).types[t.Name()].has("union") {
		s.union = w.union(t)
	}
	return s
}

// union is the line of a +union: its +unionDiscriminator, then every other field, sorted.
func (w *walk) union(t reflect.Type) string {
	discriminator, members := "-", []string{}
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if w.sources.of(t.PkgPath()).fields[t.Name()][field.Name].has("unionDiscriminator") {
			discriminator = name
		} else {
			members = append(members, name)
		}
	}
	sort.Strings(members)
	return ".union " + discriminator + " " + strings.Join(members, " ")
}

// fields adds the fields of t, flat; embed is the place of the message that holds them.
func (w *walk) fields(s *structure, t reflect.Type, embed int) {
	src := w.sources.of(t.PkgPath())
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		number := protobufNumber(field)
		if name == "" {
			if !field.Anonymous || field.Type.Kind() != reflect.Struct {
				log.Fatalf("%s.%s: neither a JSON name nor an embedded struct", t, field.Name)
			}
			inner := embed
			if number != 0 {
				line := fmt.Sprintf(".embed %s %d", field.Name, number)
				if embed != 0 {
					line += fmt.Sprintf(" %d", embed)
				}
				s.embeds = append(s.embeds, line)
				inner = len(s.embeds)
			}
			if field.Type == typeMeta {
				// The envelope carries these.
				s.fields = append(s.fields, "kind 0 string ?", "apiVersion 0 string ?")
				continue
			}
			if number == 0 {
				log.Fatalf("%s.%s: embedded without a protobuf number", t, field.Name)
			}
			w.fields(s, field.Type, inner)
			continue
		}
		line := w.field(s, field, src.fields[t.Name()][field.Name], name, options, number)
		if embed != 0 {
			line += fmt.Sprintf(" in=%d", embed)
		}
		s.fields = append(s.fields, line)
	}
}

func protobufNumber(field reflect.StructField) int {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		log.Fatalf("%s: protobuf tag: %v", field.Name, err)
	}
	return number
}

// tellsEmpty are slices of which the server's defaults tell an empty one from nil: they count as pointers.
var tellsEmpty = map[string]bool{
	"io.k8s.api.autoscaling.v2.HPAScalingRules.policies": true,
}

func (w *walk) field(s *structure, field reflect.StructField, own markers, name, options string, number int) string {
	t, flags := field.Type, ""
	omitempty := strings.Contains(options, "omitempty")
	if omitempty {
		flags += "?"
	}
	if strings.Contains(options, "omitzero") {
		flags += "z"
	}
	if t.Kind() == reflect.Pointer {
		flags += "*"
		t = t.Elem()
	} else if tellsEmpty[s.pkg+"."+s.name+"."+name] {
		flags += "*"
	}
	optional := own.has("optional") || (!own.has("required") && flags != "" && strings.ContainsAny(flags, "?z"))
	if !optional {
		flags += "!"
	}
	words := []string{name, strconv.Itoa(number), w.expression(s.pkg, t)}
	if flags != "" {
		words = append(words, flags)
	}
	if own.has("default") {
		words = append(words, "default="+w.defaultValue(t, own.first("default")))
	}
	if tag := field.Tag.Get("patchStrategy"); tag != "" {
		words = append(words, "patch="+tag)
	}
	if tag := field.Tag.Get("patchMergeKey"); tag != "" {
		words = append(words, "key="+tag)
	}
	return strings.Join(append(words, w.merging(t, own)...), " ")
}

// merging is what the markers of a field, or else those of its type, say about server-side apply.
func (w *walk) merging(t reflect.Type, own markers) []string {
	if t.PkgPath() != "" && !own.has("listType") && !own.has("mapType") && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		own = w.sources.of(t.PkgPath()).types[t.Name()]
	}
	var words []string
	switch own.first("listType") {
	case "set":
		words = append(words, "list=set")
	case "map":
		words = append(words, "list=map:"+strings.Join(own["listMapKey"], ","))
	}
	if own.first("mapType") == "atomic" || own.first("structType") == "atomic" {
		words = append(words, "map=atomic")
	}
	return words
}

// defaultValue is the JSON text of a +default marker, references to constants resolved.
func (w *walk) defaultValue(t reflect.Type, text string) string {
	if name, ok := strings.CutPrefix(text, "ref("); ok {
		name = strings.TrimSuffix(name, ")")
		value, ok := w.sources.of(t.PkgPath()).consts[name]
		if !ok {
			log.Fatalf("%s: constant %s of a default not found", t, name)
		}
		quoted, _ := json.Marshal(value)
		text = string(quoted)
	}
	if !json.Valid([]byte(text)) || strings.ContainsAny(text, " \t") {
		log.Fatalf("%s: default %s", t, text)
	}
	return text
}

// expression is the TYPE column.
func (w *walk) expression(pkg string, t reflect.Type) string {
	full := t.PkgPath() + "." + t.Name()
	if scalar, ok := scalars[full]; ok {
		if strings.HasPrefix(scalar, "schemaor") {
			field, _ := t.FieldByName("Schema")
			w.structure(field.Type.Elem())
		}
		return scalar
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Float64:
		return "double"
	case reflect.String:
		return w.text(pkg, t)
	case reflect.Interface:
		return "any"
	case reflect.Struct:
		w.structure(t)
		return qualified(pkg, t)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			log.Fatalf("%s: key", t)
		}
		return "{}" + w.expression(pkg, t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if t.PkgPath() != "" && w.sources.of(t.PkgPath()).types[t.Name()].has("protobuf.nullable") {
			return "[m]" + w.expression(pkg, t.Elem())
		}
		return "[]" + w.expression(pkg, t.Elem())
	}
	log.Fatalf("%s: kind %s has no place in the table", t, t.Kind())
	return ""
}

func qualified(pkg string, t reflect.Type) string {
	if own := openAPIPackage(t.PkgPath()); own != pkg {
		return own + "." + t.Name()
	}
	return t.Name()
}

func (w *walk) text(pkg string, t reflect.Type) string {
	if t.PkgPath() == "" {
		return "string"
	}
	src := w.sources.of(t.PkgPath())
	w.texts[t] = nil
	if src.types[t.Name()].has("enum") {
		w.texts[t] = src.enums[t.Name()]
	}
	return qualified(pkg, t)
}

func (w *walk) finish() {
	for _, s := range w.structs {
		for _, versions := range s.kinds {
			sort.Strings(versions)
		}
	}
}

// lines is the table, ordered by package, strings before structs, then by name.
func (w *walk) lines() []string {
	records := map[string][]string{} // sort key -> lines
	packages := map[string]bool{}
	for t, values := range w.texts {
		pkg := openAPIPackage(t.PkgPath())
		packages[pkg] = true
		for _, value := range values {
			if strings.ContainsAny(value, "|\n") {
				log.Fatalf("%s: enum value %q", t, value)
			}
		}
		line := "text " + t.Name()
		if values != nil {
			line = "enum " + t.Name() + " " + strings.Join(values, "|")
		}
		records[pkg+" 1 "+t.Name()] = []string{line}
	}
	for _, s := range w.structs {
		packages[s.pkg] = true
		head := "struct " + s.pkg + "." + s.name
		if s.atomic {
			head += " atomic"
		}
		lines := []string{head}
		kinds := make([]string, 0, len(s.kinds))
		for kind, versions := range s.kinds {
			kinds = append(kinds, " .kind "+kind+" "+strings.Join(versions, " "))
		}
		sort.Strings(kinds)
		lines = append(lines, kinds...)
		if s.union != "" {
			lines = append(lines, " "+s.union)
		}
		for _, line := range append(append([]string{}, s.embeds...), s.fields...) {
			lines = append(lines, " "+line)
		}
		records[s.pkg+" 2 "+s.name] = lines
	}
	for pkg := range packages {
		records[pkg+" 0"] = []string{"package " + pkg}
	}
	keys := make([]string, 0, len(records))
	for key := range records {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var all []string
	for _, key := range keys {
		all = append(all, records[key]...)
	}
	return all
}
