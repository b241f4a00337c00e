// The Hadoop client behind a pipe: one request on standard input, one answer on standard output, until the input ends.
//
// request: u8 what, UTF path, then what it takes; answer: u8 (0 fine, 1 there is no such file, 2 an error), u32 length, so many bytes.
// Compiled by Janino at start, which every Java can run and which knows neither lambdas nor try-with-resources.
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileNotFoundException;
import java.net.URI;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.GlobFilter;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;

public class HdfsFiles {
    private final DistributedFileSystem files;

    private HdfsFiles(String address) throws Exception {
        Configuration settings = new Configuration();
        settings.setIfUnset("ipc.client.connect.max.retries", "3");
        settings.setIfUnset("ipc.client.connect.max.retries.on.timeouts", "3");
        settings.setIfUnset("ipc.client.connect.timeout", "5000");
        settings.setIfUnset("ipc.client.rpc-timeout.ms", "30000");
        settings.setIfUnset("dfs.client.socket-timeout", "30000");
        files = new DistributedFileSystem();
        files.initialize(URI.create(address), settings);
    }

    public static void main(String[] words) throws Exception {
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        System.setOut(System.err); // whatever else is printed must not end up among the answers
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        HdfsFiles one = null;
        while (true) {
            int what = requests.read();
            if (what < 0) {
                return;
            }
            String path = requests.readUTF();
            long offset = requests.readLong();
            String identity = requests.readUTF();
            byte[] body = new byte[requests.readInt()];
            requests.readFully(body);
            int status = 0;
            byte[] answer;
            try {
                if (one == null) {
                    one = new HdfsFiles(words[0]);
                }
                answer = one.answer(what, path, offset, identity, body);
                if (answer == null) {
                    status = 1;
                    answer = new byte[0];
                }
            } catch (FileNotFoundException error) {
                status = 1;
                answer = new byte[0];
            } catch (Throwable error) {
                status = 2;
                answer = (error.getClass().getSimpleName() + ": " + error.getMessage()).getBytes("UTF-8");
            }
            answers.writeByte(status);
            answers.writeInt(answer.length);
            answers.write(answer);
            answers.flush();
        }
    }

    private byte[] answer(int what, String path, long offset, String identity, byte[] body) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        if (what == 'F') {
            find(path, out);
        } else if (what == 'R') {
            int count = new DataInputStream(new java.io.ByteArrayInputStream(body)).readInt();
            return read(new Path(path), offset, count, identity);
        } else if (what == 'C') {
            out.writeBoolean(create(new Path(path), body));
        } else if (what == 'D') {
            files.delete(new Path(path), false);
        } else if (what == 'N') {
            FileStatus[] found = files.listStatus(new Path(path));
            for (int i = 0; i < found.length; i++) {
                out.writeUTF(found[i].getPath().getName());
            }
        } else {
            throw new IllegalArgumentException("there is no request " + what);
        }
        return bytes.toByteArray();
    }

    private void find(String pattern, DataOutputStream out) throws Exception {
        Path path = new Path(pattern);
        FileStatus[] folders = files.globStatus(path);
        boolean whole = folders != null && folders.length == 1 && folders[0].isDirectory();
        GlobFilter names = new GlobFilter(whole ? "*" : path.getName());
        if (!whole) {
            folders = files.globStatus(path.getParent());
        }
        for (int i = 0; folders != null && i < folders.length; i++) {
            if (!folders[i].isDirectory()) {
                continue;
            }
            RemoteIterator found = files.listLocatedStatus(folders[i].getPath());
            while (found.hasNext()) {
                FileStatus status = (FileStatus) found.next();
                String name = status.getPath().getName();
                if (status.isFile() && !name.startsWith(".") && !name.startsWith("_") && names.accept(status.getPath())) {
                    describe(status, out);
                }
            }
        }
    }

    private void describe(FileStatus status, DataOutputStream out) throws Exception {
        long length = status.getLen();
        long changed = status.getModificationTime();
        if (((HdfsLocatedFileStatus) status).getLocatedBlocks().isUnderConstruction()) {
            changed = System.currentTimeMillis(); // until it is closed, its time stays that of its beginning
            try {
                FSDataInputStream in = files.open(status.getPath());
                try {
                    length = Math.max(length, ((HdfsDataInputStream) in).getVisibleLength());
                } finally {
                    in.close();
                }
            } catch (FileNotFoundException gone) {
                return;
            } catch (java.io.IOException unwritten) {
                // its first block is not anywhere yet
            }
        }
        out.writeUTF(status.getPath().toUri().getPath());
        out.writeUTF(Long.toString(((HdfsFileStatus) status).getFileId()));
        out.writeLong(length);
        out.writeLong(changed * 1000L);
    }

    private byte[] read(Path path, long offset, int count, String identity) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(Math.min(count, 1 << 16));
        FSDataInputStream in = files.open(path);
        try {
            long length = ((HdfsDataInputStream) in).getVisibleLength();
            int wanted = (int) Math.max(0L, Math.min((long) count, length - offset));
            byte[] buffer = new byte[wanted];
            in.readFully(offset, buffer, 0, wanted);
            bytes.write(buffer, 0, wanted);
        } finally {
            in.close();
        }
        if (identity.length() > 0) {
            HdfsFileStatus now = files.getClient().getFileInfo(path.toUri().getPath());
            if (now == null || !identity.equals(Long.toString(now.getFileId()))) {
                return null;
            }
        }
        return bytes.toByteArray();
    }

    private boolean create(Path path, byte[] body) throws Exception {
        files.mkdirs(path.getParent());
        Path fresh = new Path(path.getParent(), "." + path.getName() + "." + UUID.randomUUID());
        FSDataOutputStream out = files.create(fresh, false);
        try {
            out.write(body);
        } finally {
            out.close();
        }
        boolean done = files.rename(fresh, path); // not over a file that is there
        if (!done) {
            files.delete(fresh, false);
        }
        return done;
    }
}
