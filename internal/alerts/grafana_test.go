package alerts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/alerting"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/expr"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/alerts"
)

// Grafana ignores keys that it does not know, and its foundation SDK does not
// look at the values of enumerations. So files are decoded into the structs
// below with unknown keys refused, each rule and panel also by the SDK, and
// what neither sees is looked at here.

type alertFile struct {
	APIVersion int          `yaml:"apiVersion"`
	Groups     []alertGroup `yaml:"groups"`
}

type alertGroup struct {
	OrgID    int         `yaml:"orgId"`
	Name     string      `yaml:"name"`
	Folder   string      `yaml:"folder"`
	Interval string      `yaml:"interval"`
	Rules    []alertRule `yaml:"rules"`
}

type alertRule struct {
	UID          string            `yaml:"uid" json:"uid"`
	Title        string            `yaml:"title" json:"title"`
	Condition    string            `yaml:"condition" json:"condition"`
	For          string            `yaml:"for" json:"for"`
	NoDataState  string            `yaml:"noDataState" json:"noDataState"`
	ExecErrState string            `yaml:"execErrState" json:"execErrState"`
	Labels       map[string]string `yaml:"labels" json:"labels"`
	Annotations  map[string]string `yaml:"annotations" json:"annotations"`
	Data         []alertQuery      `yaml:"data" json:"data"`
}

type alertQuery struct {
	RefID         string         `yaml:"refId" json:"refId"`
	DatasourceUID string         `yaml:"datasourceUid" json:"datasourceUid"`
	Range         timeRange      `yaml:"relativeTimeRange" json:"relativeTimeRange"`
	Model         map[string]any `yaml:"model" json:"model"`
}

type timeRange struct {
	From int `yaml:"from" json:"from"`
	To   int `yaml:"to" json:"to"`
}

// problems collects what is wrong with a file.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// check notes an error. The SDK returns an empty list of errors for none.
func (p *problems) check(err error, where string) {
	if err != nil && err.Error() != "" {
		p.add("%s: %v", where, err)
	}
}

// checkAlertFile lists what is wrong with an alert provisioning file.
func checkAlertFile(text []byte) (p problems) {
	plugins.RegisterDefaultPlugins()
	var f alertFile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		p.check(err, "file")
		return p
	}
	if f.APIVersion != 1 || len(f.Groups) == 0 {
		p.add("apiVersion %d, %d groups", f.APIVersion, len(f.Groups))
	}
	uids, titles := map[string]bool{}, map[string]bool{}
	for _, g := range f.Groups {
		if _, err := model.ParseDuration(g.Interval); err != nil || g.Name == "" || g.Folder == "" || g.OrgID < 1 {
			p.add("group %q: name, folder, orgId and interval are needed: %v", g.Name, err)
		}
		for _, r := range g.Rules {
			p.rule(r, uids, titles)
		}
	}
	return p
}

var (
	uid         = regexp.MustCompile(`^[a-z0-9_-]{1,40}$`)
	placeholder = regexp.MustCompile(`\$\w+(\.\w+)*`)
	braced      = regexp.MustCompile(`\$\{`)
)

func (p *problems) rule(r alertRule, uids, titles map[string]bool) {
	where := "rule " + r.UID
	if !uid.MatchString(r.UID) || uids[r.UID] {
		p.add("%s: its uid is no uid, or there twice", where)
	}
	if r.Title == "" || titles[r.Title] {
		p.add("%s: title %q is empty, or there twice", where, r.Title)
	}
	uids[r.UID], titles[r.Title] = true, true
	if _, err := model.ParseDuration(r.For); err != nil {
		p.add("%s: for: %v", where, err)
	}
	p.oneOf(where+": noDataState", r.NoDataState, "Alerting", "NoData", "OK", "KeepLast")
	p.oneOf(where+": execErrState", r.ExecErrState, "Alerting", "Error", "OK", "KeepLast")
	p.oneOf(where+": severity", r.Labels["severity"], alerts.Critical, alerts.Warning, alerts.None)
	for name, text := range r.Labels {
		if strings.Contains(text, "$") {
			p.add("%s: label %s: Grafana expands what follows $", where, name)
		}
	}
	for name, text := range r.Annotations {
		if braced.MatchString(text) {
			p.add("%s: annotation %s: Grafana expands ${…}", where, name)
		}
		for _, v := range placeholder.FindAllString(text, -1) {
			if v != "$values.A.Value" && !strings.HasPrefix(v, "$labels.") {
				p.add("%s: annotation %s: %s is no value that Grafana has", where, name, v)
			}
		}
	}
	var refs []string
	for _, d := range r.Data {
		p.query(where+" query "+d.RefID, d, refs)
		refs = append(refs, d.RefID)
	}
	if !slices.Contains(refs, r.Condition) {
		p.add("%s: condition %q is no query", where, r.Condition)
	}
	// The SDK knows the rule of the HTTP interface, whose file form leaves out
	// what the group says.
	b, err := json.Marshal(r)
	p.check(err, where)
	var fields map[string]any
	p.check(json.Unmarshal(b, &fields), where)
	fields["orgID"], fields["folderUID"], fields["ruleGroup"] = 1, "x", "x"
	b, err = json.Marshal(fields)
	p.check(err, where)
	p.check(new(alerting.Rule).UnmarshalJSONStrict(b), where)
}

func (p *problems) query(where string, d alertQuery, earlier []string) {
	b, err := json.Marshal(d.Model)
	p.check(err, where)
	if d.RefID == "" || slices.Contains(earlier, d.RefID) || d.Model["refId"] != d.RefID {
		p.add("%s: its refId is empty, there twice, or another in its model", where)
	}
	switch d.DatasourceUID {
	case "prometheus":
		p.check(new(prometheus.Dataquery).UnmarshalJSONStrict(b), where)
		if d.Range.From <= d.Range.To || d.Model["instant"] != true {
			p.add("%s: no instant query of a time range", where)
		}
	case "__expr__":
		var threshold expr.TypeThreshold
		p.check(threshold.UnmarshalJSONStrict(b), where)
		p.oneOf(where+": type", threshold.Type, "threshold")
		if !slices.Contains(earlier, threshold.Expression) {
			p.add("%s: expression %q is no query above", where, threshold.Expression)
		}
		if len(threshold.Conditions) != 1 || len(threshold.Conditions[0].Evaluator.Params) != 1 {
			p.add("%s: want one condition with one number", where)
			return
		}
		p.oneOf(where+": evaluator", string(threshold.Conditions[0].Evaluator.Type), "gt", "lt")
	default:
		p.add("%s: data source %q", where, d.DatasourceUID)
	}
}

func (p *problems) oneOf(where, value string, known ...string) {
	if !slices.Contains(known, value) {
		p.add("%s is %q, want one of %q", where, value, known)
	}
}

// The files that are shipped have nothing wrong.
func TestGrafanaFiles(t *testing.T) {
	t.Parallel()
	files, err := alerts.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range checkAlertFile(files["deploy/grafana/provisioning/alerting/solobeat.yaml"]) {
		t.Error(p)
	}
	for _, p := range checkProvisioning(files["deploy/grafana/provisioning/datasources/solobeat.yaml"], &dataSourceFile{}) {
		t.Error(p)
	}
	for _, p := range checkProvisioning(files["deploy/grafana/provisioning/dashboards/solobeat.yaml"], &providerFile{}) {
		t.Error(p)
	}
	uids := map[string]bool{}
	for _, d := range alerts.Dashboards() {
		if !uid.MatchString(d.UID) || uids[d.UID] {
			t.Errorf("%q is no uid, or there twice", d.UID)
		}
		uids[d.UID] = true
		for _, p := range checkDashboard(files["deploy/grafana/dashboards/"+d.UID+".json"]) {
			t.Errorf("%s: %s", d.UID, p)
		}
	}
}

// Both forms of the alerts have the same queries and numbers.
func TestGrafanaHasTheSameAlerts(t *testing.T) {
	t.Parallel()
	text, err := alerts.GrafanaRules(alerts.Groups())
	if err != nil {
		t.Fatal(err)
	}
	var f alertFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			var threshold expr.TypeThreshold
			b, err := json.Marshal(r.Data[1].Model)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(b, &threshold); err != nil {
				t.Fatal(err)
			}
			e := threshold.Conditions[0].Evaluator
			wait := strings.TrimPrefix(r.For, "0s")
			got = append(got, fmt.Sprintf("%s: %v %s %g for %q", r.Title, r.Data[0].Model["expr"], map[string]string{"gt": ">", "lt": "<"}[string(e.Type)], e.Params[0], wait))
		}
	}
	text, err = alerts.Rules(alerts.Groups())
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr, For string }
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			want = append(want, fmt.Sprintf("%s: %s for %q", r.Alert, r.Expr, r.For))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("Grafana:\n%s\nPrometheus:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each of these faults is found.
func TestFaultsOfAlertFilesAreFound(t *testing.T) {
	t.Parallel()
	text, err := alerts.GrafanaRules(alerts.Groups())
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string][2]string{
		"unknown key of the file":    {"apiVersion: 1", "apiVersion: 1\nversion: 1"},
		"unknown key of a group":     {"interval: 1m", "interval: 1m\n    group_internval: 1m"},
		"unknown key of a rule":      {"condition: C", "condition: C\n        panelID: 1"},
		"unknown key of a query":     {"model: {editorMode: code, expr", "model: {editorMode: code, exprr"},
		"unknown key of a threshold": {"expression: A", "expression: A, reducer: last"},
		"no condition":               {"condition: C", "condition: D"},
		"noDataState":                {"noDataState: OK", "noDataState: Okay"},
		"execErrState":               {"execErrState: Error", "execErrState: error"},
		"evaluator":                  {"type: gt", "type: gtt"},
		"type of expression":         {"type: threshold", "type: treshold"},
		"expression of no query":     {"expression: A", "expression: B"},
		"for":                        {"for: 30m", "for: 30 minutes"},
		"severity":                   {"severity: warning", "severity: page"},
		"uid twice":                  {"uid: solobeat-jobnearlockttl", "uid: solobeat-joboutlivedlockttl"},
		"title twice":                {"title: JobNearLockTTL", "title: JobOutlivedLockTTL"},
		"long uid":                   {"uid: solobeat-jobnearlockttl", "uid: solobeat-" + strings.Repeat("x", 40)},
		"$ in a label":               {"severity: warning}", "severity: warning, job: $x}"},
		"value of Prometheus":        {"$values.A.Value", "$value"},
		"braces after $":             {"$labels.schedule", "${labels.schedule}"},
		"other data source":          {"datasourceUid: prometheus", "datasourceUid: prom"},
		"refId of the model":         {"range: false, refId: A", "range: false, refId: B"},
		"range query":                {"instant: true", "instant: false"},
	} {
		broken := strings.Replace(string(text), c[0], c[1], 1)
		if broken == string(text) {
			t.Errorf("%s: %q is not in the file", what, c[0])
		} else if len(checkAlertFile([]byte(broken))) == 0 {
			t.Errorf("%s was not found", what)
		}
	}
}

type dataSourceFile struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name, Type, UID, Access, URL string
	} `yaml:"datasources"`
}

type providerFile struct {
	APIVersion int `yaml:"apiVersion"`
	Providers  []struct {
		Name    string
		OrgID   int `yaml:"orgId"`
		Folder  string
		Type    string
		Options struct{ Path string }
	} `yaml:"providers"`
}

func checkProvisioning(text []byte, into any) (p problems) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	p.check(dec.Decode(into), "file")
	switch f := into.(type) {
	case *dataSourceFile:
		if len(f.Datasources) != 1 || f.APIVersion != 1 || f.Datasources[0].UID != "prometheus" {
			p.add("no data source with the uid that rules name")
			return p
		}
		p.oneOf("type", f.Datasources[0].Type, "prometheus")
		p.oneOf("access", f.Datasources[0].Access, "proxy")
	case *providerFile:
		if len(f.Providers) != 1 || f.APIVersion != 1 || f.Providers[0].Options.Path == "" {
			p.add("no provider with a path")
			return p
		}
		p.oneOf("type", f.Providers[0].Type, "file")
	}
	return p
}

// checkDashboard lists what is wrong with a dashboard.
func checkDashboard(text []byte) (p problems) {
	plugins.RegisterDefaultPlugins()
	p.check(new(dashboard.Dashboard).UnmarshalJSONStrict(text), "dashboard") //nolint:staticcheck // the form that dashboards are provisioned in
	var d struct {
		Refresh       string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Datasource  struct{ UID string }
			Options     map[string]any
			FieldConfig struct {
				Defaults struct {
					Unit       string
					Thresholds struct{ Mode string }
				}
			}
			Targets []struct {
				RefID, Expr, Format string
				Datasource          struct{ Type, UID string }
				Range, Instant      bool
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		p.check(err, "dashboard")
		return p
	}
	vars := []string{"__rate_interval"}
	for _, v := range d.Templating.List {
		p.oneOf("variable "+v.Name, v.Type, "datasource", "query")
		vars = append(vars, v.Name)
	}
	if d.SchemaVersion < 36 {
		p.add("schemaVersion %d", d.SchemaVersion)
	}
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	section := ""
	for _, panel := range d.Panels {
		where := "panel " + panel.Title
		if panel.Type == "row" {
			section = panel.Title
		}
		if panel.ID < 1 || ids[panel.ID] || panel.Title == "" || titles[section+"/"+panel.Title] {
			p.add("%s: its id or title is missing, or there twice", where)
		}
		ids[panel.ID], titles[section+"/"+panel.Title] = true, true
		g := panel.GridPos
		if g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			p.add("%s: lies outside of the grid: %+v", where, g)
		}
		for x := g.X; x < g.X+min(g.W, 24); x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					p.add("%s lies on %s", where, other)
				}
				taken[[2]int{x, y}] = where
			}
		}
		p.oneOf(where+": type", panel.Type, "row", string(alerts.TimeSeries), string(alerts.Stat), string(alerts.Table))
		if panel.Type == "row" {
			continue
		}
		p.oneOf(where+": unit", panel.FieldConfig.Defaults.Unit, "short", "ops", "s", "percentunit", "dateTimeFromNow")
		p.oneOf(where+": thresholds", panel.FieldConfig.Defaults.Thresholds.Mode, "absolute", "percentage")
		p.options(where, panel.Type, panel.Options)
		var refs []string
		for _, t := range panel.Targets {
			if t.RefID == "" || slices.Contains(refs, t.RefID) || t.Expr == "" || t.Range == t.Instant {
				p.add("%s: query %q: refId, expr, and one of range and instant are needed", where, t.RefID)
			}
			refs = append(refs, t.RefID)
			if t.Datasource.UID != "${datasource}" || t.Datasource.Type != "prometheus" || panel.Datasource.UID != "${datasource}" {
				p.add("%s: not of the data source that the viewer has chosen", where)
			}
			if t.Format != "" {
				p.oneOf(where+": format", t.Format, "table", "time_series", "heatmap")
			}
			for _, v := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(t.Expr, -1) {
				if !slices.Contains(vars, v[1]) {
					p.add("%s: there is no variable %s", where, v[1])
				}
			}
		}
		if len(refs) == 0 {
			p.add("%s has no query", where)
		}
	}
	return p
}

// options looks at the enumerations of a panel's options.
func (p *problems) options(where, kind string, o map[string]any) {
	text := func(path ...string) string {
		var v any = o
		for _, key := range path {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		s, _ := v.(string)
		return s
	}
	switch kind {
	case "timeseries":
		p.oneOf(where+": legend", text("legend", "displayMode"), "list", "table", "hidden")
		p.oneOf(where+": placement", text("legend", "placement"), "bottom", "right")
		p.oneOf(where+": tooltip", text("tooltip", "mode"), "single", "multi", "none")
		p.oneOf(where+": sort", text("tooltip", "sort"), "asc", "desc", "none")
	case "stat":
		p.oneOf(where+": colorMode", text("colorMode"), "value", "background", "none")
		p.oneOf(where+": graphMode", text("graphMode"), "none", "line", "area")
		p.oneOf(where+": justifyMode", text("justifyMode"), "auto", "center")
		p.oneOf(where+": textMode", text("textMode"), "auto", "value", "value_and_name", "name", "none")
		p.oneOf(where+": orientation", text("orientation"), "auto", "vertical", "horizontal")
	case "table":
		p.oneOf(where+": cellHeight", text("cellHeight"), "sm", "md", "lg")
	}
}

// Each of these faults is found.
func TestFaultsOfDashboardsAreFound(t *testing.T) {
	t.Parallel()
	text, err := alerts.Dashboards()[0].JSON()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string][2]string{
		"unknown key of the dashboard": {`"title": "Solobeat`, `"titel": "x", "title": "Solobeat`},
		"unknown key of a panel":       {`"type":"timeseries"`, `"type":"timeseries","unit":"s"`},
		"unknown key of a query":       {`"expr":"time()`, `"exprr":"time()`},
		"unknown key of options":       {`"showLegend":true`, `"showLegend":true,"show":true`},
		"unknown option of a stat":     {`"graphMode":"none"`, `"graphMode":"none","grafMode":"none"`},
		"wide panel":                   {`"w":12`, `"w":99`},
		"panel on another":             {`"x":12,"y":6`, `"x":6,"y":6`},
		"type":                         {`"type":"stat"`, `"type":"stats"`},
		"unit":                         {`"unit":"s"`, `"unit":"secs"`},
		"legend":                       {`"displayMode":"list"`, `"displayMode":"lists"`},
		"tooltip":                      {`"mode":"multi"`, `"mode":"many"`},
		"colorMode":                    {`"colorMode":"value"`, `"colorMode":"values"`},
		"id twice":                     {`"id":3,`, `"id":2,`},
		"refId":                        {`"refId":"B"`, `"refId":"A"`},
		"data source":                  {`"uid":"${datasource}"`, `"uid":"prometheus"`},
		"variable":                     {`[$__rate_interval]`, `[$interval]`},
		"range and instant":            {`"range":true`, `"range":false`},
		"format":                       {`"format":"table"`, `"format":"tables"`},
	} {
		broken := strings.Replace(string(text), c[0], c[1], 1)
		if broken == string(text) {
			t.Errorf("%s: %q is not in the file", what, c[0])
		} else if len(checkDashboard([]byte(broken))) == 0 {
			t.Errorf("%s was not found", what)
		}
	}
}
