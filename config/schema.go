package config

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:generate sh -c "go run ../cmd/solobeat schema schedule > schema/schedule.schema.json"
//go:generate sh -c "go run ../cmd/solobeat schema config > schema/solobeat.schema.json"

// documentation is doc.go: its tables say what the keys mean.
//
//go:embed doc.go
var documentation string

const (
	// taskName is what [tasks.ValidName] admits.
	taskName    = `^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$`
	schemaDraft = "http://json-schema.org/draft-07/schema#"
	schemaBase  = "https://raw.githubusercontent.com/solobeat/solobeat/main/config/schema/"
)

// ScheduleSchema returns the JSON Schema of schedule.yaml, draft 07, which
// editors read. It admits all that [ParseSchedule] admits, and refuses what can
// be told from a key and its value alone.
func ScheduleSchema() []byte {
	d := newDecoder("")
	r := newScheduleReader(d)
	s := rootShape(d, r.root, "schedule.yaml", map[string]string{"jobs": "jobs", "defaults": "jobs"})
	s["required"] = []any{"version", "jobs"}
	jobs := s.property("jobs")
	jobs["propertyNames"] = shape{"pattern": nameRE.String()}
	job := jobs.values()
	job["required"] = []any{"task"}
	job.property("task")["pattern"] = taskName
	job["oneOf"] = []any{requires("cron"), requires("every"), requires("at")}
	s.orNull("jobs", "defaults")
	return schemaText(s, "schedule.schema.json", "schedule.yaml of Solobeat: jobs, and when they are due")
}

// ConfigSchema returns the JSON Schema of solobeat.yaml, as [ScheduleSchema]
// does of the other file.
func ConfigSchema() []byte {
	d := newDecoder("")
	r := newConfigReader(d, nil)
	s := rootShape(d, r.root, "solobeat.yaml", map[string]string{"tasks": "tasks"})
	s["type"] = []any{"object", "null"}
	tasks := s.property("tasks")
	tasks["propertyNames"] = shape{"pattern": taskName}
	entry := tasks.values()
	both := requires("command", "webhook")
	both["type"] = "object"
	entry["not"] = both
	entry["dependencies"] = shape{"env": []any{"command"}, "dir": []any{"command"}}
	webhook := entry.property("webhook")
	webhook["required"] = []any{"url"}
	for _, value := range []shape{webhook.property("url"), webhook.property("headers").values()} {
		for _, form := range value.forms() {
			if form["type"] == "object" {
				form["oneOf"] = []any{requires("file"), requires("env")}
			}
		}
	}
	entry["type"] = []any{"object", "null"}
	s.orNull("tasks")
	return schemaText(s, "solobeat.schema.json", "solobeat.yaml of Solobeat: the process, and what it says of tasks")
}

// rootShape has the readers of a file tell what they take. The headings are
// those in the package's documentation: of the file, and of its blocks of names.
func rootShape(d *decoder, root func(*yaml.Node), heading string, blocks map[string]string) shape {
	docs := docTables(documentation)
	d.describer = &describer{doc: func(path string) string {
		block, key, below := strings.Cut(path, ".")
		if of := blocks[block]; of != "" && below {
			if block != "defaults" { // the name of a job or a task
				_, key, _ = strings.Cut(key, ".")
			}
			return docs[of][key].text()
		}
		return docs[heading][path].text()
	}}
	root(&yaml.Node{Kind: yaml.MappingNode})
	return anyOf(d.describer.told)
}

// docRow is one line of a table in the package's documentation.
type docRow struct{ value, meaning string }

func (r docRow) text() string {
	if r.value == "-" || r.value == "" {
		return r.meaning
	}
	return r.meaning + " (default: " + r.value + ")"
}

// docTables reads the tables of the package's documentation: the keys below
// each heading, with their defaults and meanings, parted by two blanks.
func docTables(text string) map[string]map[string]docRow {
	tables := map[string]map[string]docRow{}
	heading := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if h, ok := strings.CutPrefix(line, "// # "); ok {
			heading = h
			tables[heading] = map[string]docRow{}
			continue
		}
		row, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(row, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		if len(cells) == 3 {
			tables[heading][cells[0]] = docRow{cells[1], cells[2]}
		}
	}
	return tables
}

func requires(keys ...string) shape { return shape{"required": keys} }

// property is the shape of a key. A key that is not there is a mistake in this
// file, which its tests find.
func (s shape) property(name string) shape {
	properties, _ := s["properties"].(shape)
	p, ok := properties[name].(shape)
	if !ok {
		panic("config: no key " + name + " in the schema")
	}
	return p
}

// values is the shape of what stands behind any name.
func (s shape) values() shape {
	v, ok := s["additionalProperties"].(shape)
	if !ok {
		panic("config: a block of the schema has no names")
	}
	return v
}

// forms are the alternatives of a shape.
func (s shape) forms() []shape {
	list, ok := s["anyOf"].([]any)
	if !ok {
		return []shape{s}
	}
	var forms []shape
	for _, f := range list {
		if form, ok := f.(shape); ok {
			forms = append(forms, form)
		}
	}
	return forms
}

// orNull lets blocks have nothing below them.
func (s shape) orNull(names ...string) {
	for _, name := range names {
		s.property(name)["type"] = []any{"object", "null"}
	}
}

func schemaText(s shape, name, title string) []byte {
	out := maps.Clone(s)
	out["$schema"], out["$id"], out["title"] = schemaDraft, schemaBase+name, title
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil { // cannot be: shapes are texts, numbers and lists of them
		panic(err)
	}
	return b.Bytes()
}
