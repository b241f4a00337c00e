// A writer of files on HDFS that keeps them open between appends. One request per line, words with blanks between them; "ok" or what went wrong.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

public class HdfsWriter {
    public static void main(String[] words) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Configuration settings = new Configuration();
        settings.set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER");
        DistributedFileSystem files = new DistributedFileSystem();
        files.initialize(URI.create(words[0]), settings);
        Map open = new HashMap();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                answers.println(answer(files, open, line.split(" ")));
            } catch (Throwable error) {
                answers.println(error.toString().replace("\n", " "));
            }
            answers.flush();
        }
    }

    private static String answer(DistributedFileSystem files, Map open, String[] words) throws Exception {
        String what = words[0];
        Path path = new Path(words[1]);
        FSDataOutputStream out = (FSDataOutputStream) open.get(words[1]);
        if (what.equals("append")) {
            if (out == null) {
                out = files.exists(path) ? files.append(path) : files.create(path, false);
                open.put(words[1], out);
            }
            out.write(Base64.getDecoder().decode(words.length > 2 ? words[2] : ""));
            out.hflush();
        } else if (what.equals("close")) {
            if (out != null) {
                out.close();
                open.remove(words[1]);
            }
        } else if (what.equals("delete")) {
            files.delete(path, false);
        } else if (what.equals("truncate")) {
            boolean done = files.truncate(path, Long.parseLong(words[2]));
            for (int tries = 0; !done && tries < 1200; tries++) { // a block that is cut in its middle is recovered first
                Thread.sleep(50);
                done = files.isFileClosed(path);
            }
            return done ? "ok" : "not cut";
        } else if (what.equals("rename")) {
            return files.rename(path, new Path(words[2])) ? "ok" : "not renamed";
        } else {
            return "there is no request " + what;
        }
        return "ok";
    }
}
